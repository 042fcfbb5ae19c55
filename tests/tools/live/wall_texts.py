"""Texts of walls, and of pages that talk of such things: (title, text, warned of a captcha)."""

WALLS = [
    (
        "Just a moment...",
        "Enable JavaScript and cookies to continue",
        False,
    ),
    (
        "example.com",
        "Verifying you are human. This may take a few seconds.\n\nexample.com needs to "
        "review the security of your connection before proceeding.",
        False,
    ),
    (
        "Access denied",
        "You do not have access to www.example.com.\n\nThe site owner may have set "
        "restrictions that prevent you from accessing the site.\n\nRay ID: 7d0c\n"
        "Timestamp: 2023\nYour IP address: 1.2.3.4",
        False,
    ),
    (
        "Access denied | www.x.com used Cloudflare to restrict access",
        "Error 1020\n\nAccess denied\n\nWhat happened?\n\nThis website is using a "
        "security service to protect itself from online attacks.\n\nCloudflare Ray ID: "
        "7\n\nPerformance & security by Cloudflare",
        False,
    ),
    (
        "",
        "Please verify you are a human\n\nAccess to this page has been denied because "
        "we believe you are using automation tools to browse the website.\n\nThis may "
        "happen as a result of the following:\n\n* Javascript is disabled or blocked "
        "by an extension (ad blockers for example)\n* Your browser does not support "
        "cookies\n\nPlease make sure that Javascript and cookies are enabled on your "
        "browser and that you are not blocking them from loading.\n\nReference ID: #abc",
        False,
    ),
    (
        "Security Check",
        "To continue, please complete the security check below.\n\nI'm not a robot",
        True,
    ),
    (
        "hCaptcha",
        "Please solve this CAPTCHA to continue",
        True,
    ),
    (
        "Are you a robot?",
        "Please confirm you are a human by completing the captcha challenge below.\n\n"
        "Reference number: 8f3",
        True,
    ),
    (
        "Sorry!",
        "Our systems have detected unusual traffic from your computer network. Please "
        "try your request again later.",
        False,
    ),
    (
        "Unusual Traffic Detected",
        "We have detected unusual traffic from your network. Please complete the "
        "captcha to proceed.",
        True,
    ),
    (
        "Loading...",
        "Please turn JavaScript on and reload the page.",
        False,
    ),
    (
        "DDoS-Guard",
        "Checking your browser before accessing example.com",
        False,
    ),
    (
        "Captcha",
        "Подтвердите, что вы не робот",
        True,
    ),
    (
        "Bitte bestätigen",
        "Wir haben ungewöhnlichen Datenverkehr aus Ihrem Netzwerk festgestellt. Bitte "
        "bestätigen Sie, dass Sie kein Roboter sind.",
        False,
    ),
    (
        "Reddit - Blocked",
        "whoa there, pardner!\n\nYour request has been blocked due to a network "
        "policy.\n\nTry logging in or creating an account here to get back to browsing.",
        False,
    ),
    (
        "Blocked",
        "You've been blocked by network security.\n\nTo continue, log in to your "
        "Reddit account or use your developer token\n\nIf you think you've been "
        "blocked by mistake, file a ticket below and we'll look into it.",
        False,
    ),
    (
        "Attention Required! | Cloudflare",
        "Please enable cookies.\n\nOne more step\n\nPlease complete the security check "
        "to access www.example.com",
        True,
    ),
    (
        "x",
        "This content requires JavaScript. Please enable JavaScript in your browser "
        "settings and reload the page.",
        False,
    ),
    (
        "App",
        "Loading...\n\nThis application requires JavaScript.",
        False,
    ),
    (
        "Verification",
        "完成下方验证即可继续",
        True,
    ),
    (
        "",
        "请开启JavaScript并刷新该页.",
        False,
    ),
    (
        "访问验证",
        "您的访问过于频繁，请完成验证",
        True,
    ),
    (
        "Robot Check",
        "Enter the characters you see below",
        False,
    ),
    (
        "本人確認",
        "続行するには、ロボットではないことを確認してください",
        True,
    ),
    (
        "",
        "このサイトを利用するにはJavaScriptを有効にしてください。",
        False,
    ),
    (
        "잠시만 기다리십시오…",
        "이 사이트를 계속 보려면 JavaScript와 쿠키를 활성화하세요",
        False,
    ),
    (
        "Vérification de sécurité",
        "Veuillez confirmer que vous n'êtes pas un robot",
        True,
    ),
    (
        "Acceso denegado",
        "No tiene permiso para acceder a esta página en este servidor.",
        False,
    ),
    (
        "example.org",
        "Incapsula incident ID: 123-456",
        False,
    ),
    (
        "Pardon Our Interruption...",
        "As you were browsing www.x.com something about your browser made us think you "
        "might be a bot.",
        False,
    ),
    (
        "403 Forbidden",
        "Forbidden\n\nYou don't have permission to access this resource.",
        False,
    ),
    (
        "Human Verification",
        "Let's confirm you are human\n\nComplete the security check before continuing. "
        "This step verifies that you are not a bot, which helps to protect your "
        "account and prevent spam.\n\nBegin",
        False,
    ),
    (
        "Client Challenge",
        "JavaScript is disabled in your browser. Please enable JavaScript to proceed.",
        False,
    ),
    (
        "Checking your browser - reCAPTCHA",
        "Checking your browser before accessing pmc.ncbi.nlm.nih.gov ...\n\nClick here "
        "if you are not automatically redirected after 5 seconds.",
        True,
    ),
    (
        "We value your privacy",
        "We and our 842 partners store and access personal data, like browsing data or "
        "unique identifiers, on your device. Selecting I Accept enables tracking "
        "technologies.\n\nAccept all\n\nReject all\n\nManage options",
        False,
    ),
    (
        "Yahoo",
        "Yahoo is part of the Yahoo family of brands.\n\nWe, Yahoo, use cookies to "
        "provide our sites and apps to you\n\nIf you click 'Accept all', we and our "
        "partners will also store and access information on a device\n\nAccept all "
        "Reject all",
        False,
    ),
    (
        "Attention Required! | Cloudflare",
        "## Please complete the security check to access example.org\n\nWhy do I have "
        "to complete a CAPTCHA?\n\nCompleting the CAPTCHA proves you are a human and "
        "gives you temporary access to the web property.\n\nWhat can I do to prevent "
        "this in the future?\n\nIf you are on a personal connection, like at home, you "
        "can run an anti-virus scan on your device to make sure it is not infected "
        "with malware.",
        True,
    ),
    (
        "Access to this page has been denied.",
        "Please verify you are a human\n\nAccess to this page has been denied because "
        "we believe you are using automation tools to browse the website.",
        False,
    ),
    (
        "example.org",
        "Verify you are human by completing the action below.",
        False,
    ),
    (
        "example.org",
        "Please enable cookies.\n\nSorry, you have been blocked\n\nYou are unable to "
        "access example.org",
        False,
    ),
    (
        "Just a moment...",
        "Verifying you are human. This may take a few seconds.\n\nVerification "
        "successful\n\nWaiting for example.org to respond...",
        False,
    ),
    (
        "One moment, please...",
        "Please wait while your request is being verified...",
        False,
    ),
    (
        "Security verification",
        "We're checking that you're a real person. Hold tight.",
        True,
    ),
    (
        "",
        "We need to verify that you are not a robot. Click the button below to continue.",
        False,
    ),
    (
        "Bot check",
        "Complete the puzzle to prove you're human",
        True,
    ),
    (
        "Mill - Access Denied",
        "You have been denied access to this page because automated access is not allowed.",
        False,
    ),
    (
        "Too many requests",
        "Your computer or network may be sending automated queries. To protect our "
        "users, we can't process your request right now.",
        False,
    ),
    (
        "example.org",
        "Our system thinks you might be a robot! We're really sorry about this, but "
        "it's getting harder and harder to tell the difference between humans and bots "
        "these days.",
        False,
    ),
    (
        "StubHub",
        "Your browsing activity has been paused\n\nWe've detected unusual behavior on "
        "either your network or your browser.",
        False,
    ),
    (
        "Please confirm",
        "Before you proceed, please tick the box to show that you are not a robot.",
        True,
    ),
    (
        "403",
        "Your IP has been blocked due to suspicious activity.",
        False,
    ),
    (
        "example",
        "JavaScript must be enabled in your browser in order to use this site.",
        False,
    ),
    (
        "example",
        "It looks like your browser has JavaScript turned off. Please enable it to view this page.",
        False,
    ),
    (
        "example",
        "<noscript>Please enable JavaScript</noscript>",
        False,
    ),
    (
        "Example App",
        "You need JavaScript enabled to view this page.",
        False,
    ),
    (
        "Example",
        "Your browser doesn't support JavaScript. Please enable it or use a different browser.",
        False,
    ),
    (
        "Google",
        "Before you continue\n\nSign in\n\nWe use cookies and data to Deliver and "
        "maintain Google services",
        False,
    ),
    (
        "知乎",
        "系统监测到您的网络环境存在异常，请点击下方验证按钮进行验证",
        True,
    ),
    (
        "安全验证",
        "为了您的账号安全，请完成以下验证",
        True,
    ),
    (
        "アクセス確認",
        "ロボットによるアクセスではないことを確認するため、下のボタンを押してください。",
        True,
    ),
    (
        "확인",
        "자동화된 접근이 감지되었습니다. 로봇이 아님을 확인해 주세요.",
        True,
    ),
    (
        "Проверка",
        "Проверяем, что вы не робот. Пожалуйста, подождите несколько секунд.",
        False,
    ),
    (
        "Momento",
        "Confirme que é humano completando a ação abaixo.",
        False,
    ),
    (
        "Ein Moment",
        "Wir überprüfen, ob die Verbindung zur Seite sicher ist.",
        False,
    ),
    (
        "Vérification",
        "Vérification que vous n'êtes pas un robot...",
        False,
    ),
    (
        "Bir dakika lütfen...",
        "İnsan olduğunuzu doğrulayın",
        True,
    ),
    (
        "Just a moment...",
        "## www.example.com\n\n## Verify you are human by completing the action "
        "below.\n\nwww.example.com needs to review the security of your connection before "
        "proceeding.\n\nRay ID: `8c`\n\nPerformance & security by "
        "[Cloudflare](https://www.cloudflare.com)",
        False,
    ),
    (
        "",
        "Title: Just a moment...\n\nVerifying you are human. This may take a few "
        "seconds.\n\nexample.com needs to review the security of your connection before "
        "proceeding.",
        False,
    ),
    (
        "Access Denied",
        '# Access Denied\n\nYou don\'t have permission to access "http://www.example.com/" on '
        "this server.\n\nReference #18.5d\n\nhttps://errors.edgesuite.net/18.5d",
        False,
    ),
    (
        "Making sure you're not a bot!",
        "# Making sure you're not a bot!\n\n![](x)\n\nLoading...\n\nYou are seeing this "
        "because the administrator of this website has set up Anubis to protect the server "
        "against the scourge of AI companies aggressively scraping websites. This can and does "
        "cause downtime for the websites, which makes their resources inaccessible for "
        "everyone.\n\nAnubis is a compromise. Anubis uses a Proof-of-Work scheme in the vein "
        "of Hashcash, a proposed proof-of-work scheme for reducing email spam. The idea is "
        "that at individual scales the additional load is ignorable, but at mass scraper "
        "levels it adds up and makes scraping much more expensive.\n\nUltimately, this is a "
        "placeholder solution so that more time can be spent on fingerprinting and identifying "
        "headless browsers (EG: via how they do font rendering) so that the challenge proof of "
        "work page doesn't need to be presented to users that are much more likely to be "
        "legitimate.\n\nPlease note that Anubis requires the use of modern JavaScript features "
        "that plugins like JShelter will disable. Please disable JShelter or other such "
        "plugins for this domain.\n\nThis website is running Anubis version 1.21.0.",
        False,
    ),
    (
        "Reddit - The heart of the internet",
        "Prove your humanity\n\nWe’re committed to safety and security. But not for bots. "
        "Complete the challenge below and let us know you’re a real person.\n\nReddit, Inc. © "
        "2025. All rights reserved.",
        False,
    ),
    (
        "Security Checkpoint",
        "We're verifying your browser\n\nWebsite owner? Click here to fix\n\nVercel Security "
        "Checkpoint",
        False,
    ),
    (
        "Client Challenge",
        "JavaScript is disabled in your browser.\n\nPlease enable JavaScript to proceed.\n\nA "
        "required part of this site couldn’t load. This may be due to a browser extension, "
        "network issues, or browser settings. Please check your connection, disable any ad "
        "blockers, or try using a different browser.",
        False,
    ),
    (
        "Yahoo",
        "Oops, something went wrong\n\nPlease verify you are a human",
        False,
    ),
    (
        "Quora",
        "Performing security verification\n\nThis website uses a security service to protect "
        "against malicious bots. This page is displayed while the website verifies you are not "
        "a bot.",
        False,
    ),
    (
        "Error",
        "Sorry, something went wrong on our end. Are you a robot? Please complete the captcha.",
        False,
    ),
    (
        "Human Verification",
        "Let's confirm you are human\n\nComplete the security check before continuing. This "
        "step verifies that you are not a bot, which helps to protect your account and prevent "
        "spam.\n\nBegin",
        False,
    ),
    (
        "Etsy",
        "Pardon the interruption. We want to make sure it is actually you we are dealing with "
        "and not a robot. Please slide the puzzle.",
        False,
    ),
    (
        "ACM Digital Library",
        "Checking if the site connection is secure\n\ndl.acm.org needs to review the security "
        "of your connection before proceeding.",
        False,
    ),
    (
        "Wiley",
        "Verify you are human\n\nPlease complete the security check to access "
        "onlinelibrary.wiley.com",
        False,
    ),
    (
        "IEEE Xplore",
        "Request Rejected\n\nThe requested URL was rejected. Please consult with your "
        "administrator. Your support ID is: 1",
        False,
    ),
    (
        "Ticketmaster",
        "Your Browsing Activity Has Been Paused\n\nWe've detected unusual behavior on either "
        "your network or your browser. Let's get your identity verified.",
        False,
    ),
    (
        "Douban",
        "检测到有异常请求从你的 IP 发出，请登录使用豆瓣。",
        False,
    ),
    (
        "Bilibili",
        "访问出错 由于触发哔哩哔哩安全风控策略，该次访问请求被拒绝。",
        False,
    ),
    (
        "淘宝",
        "亲，请拖动下方滑块完成验证",
        False,
    ),
    (
        "京东验证",
        "快速验证 拖动滑块完成拼图",
        False,
    ),
    (
        "Sorry...",
        "We're sorry... but your computer or network may be sending automated queries. To "
        "protect our users, we can't process your request right now.",
        False,
    ),
    (
        "Instagram",
        "Instagram\n\nPlease wait a few minutes before you try again.",
        False,
    ),
    (
        "ShieldSquare Captcha",
        "We apologize for the inconvenience... but your activity and behavior on this site "
        "made us think that you are a bot. Please solve this CAPTCHA to request unblock to the "
        "website",
        False,
    ),
    (
        "Radware Captcha Page",
        "We apologize for the inconvenience...\n\nPlease solve this CAPTCHA in helping us "
        "understand your behavior to grant access. Incident ID: 1",
        False,
    ),
    (
        "Access to this page has been denied",
        "Access to this page has been denied because we believe you are using automation tools "
        "to browse the website.\n\nReference ID: #1",
        False,
    ),
    (
        "Bitte warten",
        "Einen Moment bitte. Wir prüfen, ob Sie ein Mensch sind.",
        False,
    ),
    (
        "Cloudflare",
        "Please unblock challenges.cloudflare.com to proceed.",
        False,
    ),
    (
        "Checking your Browser",
        "Checking your Browser…\n\nClick here if you are not automatically redirected after 5 "
        "seconds.\n\nProtected by StackPath",
        False,
    ),
    (
        "Attention",
        "Please turn JavaScript on and reload the page. DDoS protection by BlazingFast",
        False,
    ),
    (
        "TSPD",
        "Please enable JavaScript to view the page content. Your support ID is: 123.",
        False,
    ),
]

PAGES = [
    (
        "Enable JavaScript",
        "Open the settings and tick 'JavaScript'. Reload the page afterwards.",
        False,
    ),
    (
        "Just a moment...",
        "I get this page on every site since Tuesday. What can I do? My router was "
        "replaced on Monday by the telephone company.",
        False,
    ),
    (
        "Just a moment...",
        "The mill was built in 1912.",
        True,
    ),
    (
        "How to verify you are human on Discord",
        "Verify you are human by ticking the box. Then enter your phone number and "
        "wait for the code. The bot grants you the role at once.",
        True,
    ),
    (
        "Access denied",
        "Access denied error in MySQL: check the password of root and the host in the "
        "grant tables, then flush privileges.",
        False,
    ),
    (
        "Press & Hold",
        "Press and hold the power button for ten seconds until the light turns off. "
        "Release it and wait.",
        False,
    ),
    (
        "Security check at airports",
        "Complete the security check before the gate. Liquids go into a bag of one "
        "litre. Laptops come out.",
        False,
    ),
    (
        "Cookie policy",
        "We use cookies to remember your language and to count visits. You may refuse "
        "them. They last a year.",
        False,
    ),
    (
        "Unusual traffic",
        "Unusual traffic on the A7 this weekend: the bridge at Morvane is closed until "
        "Monday morning.",
        False,
    ),
    (
        "Robots",
        "Are you a robot? asked the child. The machine said that it was, and built in 1912.",
        False,
    ),
    (
        "Blocked",
        "Your request has been blocked is what users of the forum read in 2019 after a "
        "rule was set wrongly by an admin.",
        False,
    ),
    (
        "Loading",
        "Loading docks of the mill were rebuilt in 1912 by Salen.",
        False,
    ),
    (
        "JavaScript",
        "JavaScript is required for the course CS101. Students learn variables, "
        "functions and objects in ten weeks.",
        False,
    ),
    (
        "Status 403",
        "You don't have permission to access is the text of Apache's 403 page since version 1.3.",
        False,
    ),
    (
        "The mill",
        "The mill was built in 1912.\n\nPlease enable JavaScript to continue.",
        False,
    ),
    (
        "Ihr Browser",
        "Aktivieren Sie JavaScript in Firefox: Öffnen Sie die Einstellungen. Suchen "
        "Sie den Eintrag javascript.enabled. Setzen Sie ihn auf true.",
        False,
    ),
    (
        "로봇",
        "로봇이 아닙니다라는 문구는 캡차에서 쓰인다. 캡차는 2000년에 만들어졌으며 "
        "사람과 컴퓨터를 구별하는 기술이다.",
        True,
    ),
    (
        "人机验证 - 维基",
        "人机验证是一种安全措施，用于区分人类用户和自动程序。该技术最早由卡内基梅隆大学于"
        "2003年提出，后来被谷歌收购。",
        True,
    ),
    (
        "Vertrag",
        "Verifizieren Sie Ihr Konto. Der Zugriff auf das Archiv wurde 1954 verweigert. "
        "Die Mühle gehört Salen.",
        False,
    ),
    (
        "What is a CAPTCHA?",
        "A CAPTCHA asks visitors to prove that they are human. It was invented in "
        "2000. Sites such as ticket shops use it against bots.",
        True,
    ),
    (
        "CAPTCHA",
        "CAPTCHA was invented in 2000 at Carnegie Mellon.",
        True,
    ),
    (
        "Cloudflare",
        "Cloudflare, Inc. is an American company founded in 2009. Its challenge page "
        'says "Just a moment..." and "Verify you are human".',
        True,
    ),
    (
        "Just a moment...",
        "Just a moment... is the title of the page that Cloudflare shows while it "
        "checks the browser.",
        False,
    ),
    (
        "Just a moment... - Forum",
        "anna: Why do I see 'Just a moment...' on every page?\n\nben: It is "
        "Cloudflare. Your network sends a lot of traffic.\n\nanna: Thanks!",
        True,
    ),
    (
        "Enable JavaScript",
        "To enable JavaScript in Chrome: 1. Open Settings. 2. Choose Privacy and "
        "security. 3. Choose Site settings. 4. Turn on JavaScript.",
        False,
    ),
    (
        "Please enable JavaScript - how to",
        "Please enable JavaScript is a message that many sites show. Here is how to "
        "turn it on in Firefox, Chrome and Safari.",
        False,
    ),
    (
        "Access Denied (1994 film)",
        "Access Denied is a 1994 thriller directed by Ada Tavelin. It runs for 98 minutes.",
        False,
    ),
    (
        "Are You Human?",
        "Are You Human? is a 2018 South Korean television series starring Seo Kang-joon.",
        False,
    ),
    (
        "I'm Not a Robot",
        "I'm Not a Robot is a South Korean television series. It aired on MBC from December 2017.",
        False,
    ),
    (
        "Are you a robot?",
        "Are you a robot? is a question that Alan Turing's test of 1950 turns around.",
        False,
    ),
    (
        "Robot or Human?",
        "The exhibition Robot or Human? opened in Morvane in 2019 and drew 40,000 visitors.",
        False,
    ),
    (
        "Security Check",
        "Security Check is a 2021 short story by Ada Tavelin about an airport.",
        False,
    ),
    (
        "reCAPTCHA",
        "reCAPTCHA was bought by Google in September 2009.",
        True,
    ),
    (
        "Unusual traffic from your computer network - Help",
        "If devices on your network seem to be sending automated traffic to Google, "
        'you might see "Our systems have detected unusual traffic from your computer '
        'network." This page explains what to do about it. Google considers automated '
        "traffic searches from a robot, a computer program, an automated service or a "
        "search scraper.",
        True,
    ),
    (
        "Contact",
        "Mill Lane 3, Morvane. Telephone 555 0100. Complete the captcha below to send "
        "us a message.",
        True,
    ),
    (
        "The mill",
        "The owner is Salen. JavaScript is disabled in your browser, so the map is not shown.",
        False,
    ),
    (
        "Pricing",
        "Bot protection costs 20 dollars a month. Your data stay in Europe. The first "
        "month is free.",
        False,
    ),
    (
        "DDoS protection",
        "DDoS protection for your site from 9 euros a month, with data centres in "
        "Morvane and Tavel.",
        False,
    ),
    (
        "Press",
        "Press & hold: the new album by Ada Tavelin is out on 3 May. Listen to it now.",
        False,
    ),
    (
        "429 Too Many Requests - HTTP | MDN",
        "# 429 Too Many Requests\n\nThe HTTP 429 Too Many Requests client error response "
        "status code indicates the client has sent too many requests in a given amount of "
        "time. This mechanism of asking the client to slow down the rate of requests is "
        "commonly called rate limiting.",
        False,
    ),
    (
        "Rate limits - API",
        "You have sent too many requests means that your key is over its quota of 60 a minute. "
        "Wait a minute or ask for a higher tier.",
        False,
    ),
    (
        "Too many requests, too few judges",
        "The court of Salen received 4,100 requests in 1912, and three judges to read them.",
        False,
    ),
    (
        "Help Us Protect the Mill",
        "Donate to help us protect the mill of Salen, built in 1912. The roof needs 40,000 EUR.",
        False,
    ),
    (
        "Anubis: Web AI Firewall",
        "Anubis uses proof of work to weigh the soul of your connection. It was written by Xe "
        "Iaso in January 2025.",
        False,
    ),
    (
        "You are seeing this because",
        "You are seeing this because the administrator of the list added your address in 1998, "
        "wrote Ada Lin in her memoir.",
        False,
    ),
    (
        "网络安全",
        "网络不给力是2012年的流行语，出自一款手机软件的提示。",
        False,
    ),
    (
        "验证码",
        "用户输入正确的验证码后即可登录，这一做法始于1997年。",
        False,
    ),
    (
        "네이버 뉴스",
        "경찰은 비정상적인 접근이 감지된 계정 1912개를 차단했다고 밝혔다. 피해자는 대부분"
        " 노인이었다.",
        False,
    ),
    (
        "Un attimo",
        "Un attimo è un film del 1912 diretto da Ada Lin e girato a Salen in tre giorni.",
        False,
    ),
    (
        "Cierpliwości",
        "Cierpliwości to wiersz Jana Weira z 1912 roku, napisany w Łodzi po powodzi.",
        False,
    ),
    (
        "Bir dakika",
        "Bir dakika, 1912 yılında çekilen bir filmdir. Yönetmeni Ada Lin.",
        False,
    ),
    (
        "One more step - band",
        "One More Step is a band from Salen, formed in 1998. Please complete the set list "
        "before Friday, the singer said.",
        False,
    ),
    (
        "Security check",
        "Security check at Salen airport takes 12 minutes on average, the operator said in 2019.",
        False,
    ),
    (
        "Salen museum opening hours",
        "The museum is open from 9 to 5. If you believe you have left something here, write to "
        "us. Tickets cost 5 EUR.",
        False,
    ),
    (
        "JavaScript is not available",
        "In 1995 JavaScript is not available in Internet Explorer 2; Microsoft added JScript "
        "in 1996.",
        False,
    ),
    (
        "How to fix 'Enable JavaScript and cookies to continue'",
        "Cloudflare shows this text when its challenge cannot run. Clear your cookies, turn "
        "off extensions, and reload the page.",
        False,
    ),
    (
        "Stack Overflow: requests returns 'Just a moment...'",
        "I call requests.get and get 'Checking your browser before accessing'. The site uses "
        "Cloudflare. Use a browser such as Playwright to get the page.",
        False,
    ),
    (
        "Blocked",
        "Blocked is a 1998 drama film. It was shot in Salen by Ada Lin.",
        False,
    ),
    (
        "Sorry",
        "Sorry is a song by Tin Mill, released in 1998.",
        False,
    ),
    (
        "Robot",
        "Are you a robot? asks the first line of Ada Lin's poem of 1984.",
        False,
    ),
    (
        "CAPTCHA solver prices",
        "Solving a captcha costs 0.5 USD per thousand in 2019, according to the shop.",
        False,
    ),
    (
        "Access denied",
        "Access Denied is a 2019 report on the 412 journalists who were denied access to courts.",
        False,
    ),
    (
        "The mill",
        "Please enable JavaScript to view the comments.\n\nThe mill was built in 1912.",
        False,
    ),
    (
        "Docs",
        "Your request has been blocked by CORS policy: the server must send "
        "Access-Control-Allow-Origin. Set it in nginx with add_header.",
        False,
    ),
]
